// Sets the chosen theme before anything is painted; "" follows the system.
try { document.documentElement.dataset.theme = localStorage.getItem("spar-theme") || ""; } catch { /* no storage */ }
