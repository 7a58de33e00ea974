"""Which ranks and hosts are late, and what records can say of slow links."""
