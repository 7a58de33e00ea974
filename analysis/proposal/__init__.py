"""The scaling section of a proposal for compute time: text, table, figures and the node-hours to ask for."""
