// Dark or light: as the system has it, unless the person chose the other.

const THEME = "liveshape.theme";
const systemDark = matchMedia("(prefers-color-scheme: dark)");

function showTheme() {
  const chosen = stored(THEME);
  if (chosen) document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
  byId("theme").replaceChildren(icon(isDark() ? "sun" : "moon"));
  byId("theme").ariaLabel = byId("theme").title = isDark() ? "Light" : "Dark";
}

function isDark() {
  const chosen = stored(THEME);
  return chosen ? chosen === "dark" : systemDark.matches;
}

// Back to what the system prefers is back to following it.
function toggleTheme() {
  const dark = !isDark();
  store(THEME, dark === systemDark.matches ? null : dark ? "dark" : "light");
  showTheme();
}

function startTheme() {
  showTheme();
  systemDark.addEventListener("change", showTheme);
  byId("theme").addEventListener("click", toggleTheme);
}
