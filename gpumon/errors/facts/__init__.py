"""Values that follow from others: what needs arithmetic or a table. An entry names the functions that it uses.

A function takes the values and the text of a message, and returns further values under the names of slots. It knows
neither entries nor fixes.
"""
