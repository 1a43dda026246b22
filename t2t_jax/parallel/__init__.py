"""Where arrays live: mesh of devices, logical axes -> mesh axes."""
