"""Vectors of texts, by small models that are installed with the extra `vectors`.

minilm  all-MiniLM-L6-v2 with 8-bit weights, by onnxruntime; its vocabulary is in this folder
"""
