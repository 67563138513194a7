"""Remembered calls: how they went in a situation, and what follows from that for the next call.

recalled    asks the memory, bounded in number and time
situations  situations, and what is the same in two of them; pure
evidence    lets remembered calls vote on which tool to call; pure
failures    finds the failure that a call would repeat, and a value that worked in its place; pure
sequences   finds a sequence of calls that led to success; pure
"""
