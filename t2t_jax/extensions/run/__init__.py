"""Jobs other than training and scoring.

preparation.py     preparation in parts on Beam
synthetic_text.py  training text that a model makes: back-translation, a teacher's
distillation.py    a student of a teacher's text
save_minutes.py    the steps between two saves, of a number of minutes
trackers.py        Weights & Biases, MLflow
rerun.py           reruns of recorded steps
answers.py         reruns of an answer that a server gave
"""
