"""Launchers, a file for each; `base.launchers` lists them."""
