"""Feed-forward layers."""

FEED_FORWARD = {"relu": None}
