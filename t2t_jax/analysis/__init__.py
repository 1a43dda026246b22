"""Measurements of trained models and of single layers, and fits of what is measured."""
