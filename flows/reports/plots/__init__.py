"""Plots of every page.

charts             small elements of our own, the same on every page
figures            plots by matplotlib, in the colours of the stylesheet
classifier_curves  a classifier's measures
"""
