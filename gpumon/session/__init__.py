"""The state of one open gpumon: frames, runs, probes, alerts and costs become one `ViewState`. No Textual."""
