"""Networks on pictures: what recipes of several papers share."""
