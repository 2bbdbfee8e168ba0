// Before anything is painted: the theme that was chosen here before, or the system's.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("colonnade-theme"); } catch { /* no storage, no memory */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
