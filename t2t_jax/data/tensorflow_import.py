"""TensorFlow, as everything here that wants it imports it."""

import os


def import_tensorflow():
    """TensorFlow, silent and without accelerators, which belong to JAX.

    Raises:
      ImportError: it is not installed.
    """
    # It only reads and feeds, and would tell of oneDNN on the screen.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    tf.config.set_visible_devices([], "TPU")
    return tf
