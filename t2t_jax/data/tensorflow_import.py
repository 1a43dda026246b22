"""TensorFlow without its messages and without accelerators."""

import os


def import_tensorflow():
    """Imports TensorFlow so that it prints nothing and leaves accelerators to JAX.

    Raises:
      ImportError: TensorFlow is not installed.
    """
    # TensorFlow only reads and feeds data here, so oneDNN gains nothing, and it would
    # print a notice. Both variables must be set before the import.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    # Otherwise TensorFlow would reserve memory of the devices that JAX uses.
    tf.config.set_visible_devices([], "GPU")
    tf.config.set_visible_devices([], "TPU")
    return tf
