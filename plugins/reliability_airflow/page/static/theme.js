// The theme of Airflow's own UI: its <html> has the class "dark" or "light". Runs before the first
// paint. Outside of Airflow's frame, what Airflow has stored decides, then the system.
(() => {
  const own = document.documentElement;
  const airflow = () => {
    try {
      return window.parent !== window ? window.parent.document.documentElement : null;
    } catch {
      return null; // another origin's frame
    }
  };
  const chosen = () => {
    const outer = airflow();
    if (outer?.classList.contains("dark")) return "dark";
    if (outer?.classList.contains("light")) return "light";
    let stored = null;
    try {
      stored = localStorage.getItem("theme");
    } catch {
      // no storage: the system decides
    }
    if (stored === "dark" || stored === "light") return stored;
    return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  };
  const apply = () => {
    own.dataset.theme = chosen();
    own.dataset.framed = airflow() ? "yes" : "no";
    window.dispatchEvent(new Event("themechange"));
  };
  apply();
  const outer = airflow();
  if (outer) new MutationObserver(apply).observe(outer, { attributeFilter: ["class"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
})();
