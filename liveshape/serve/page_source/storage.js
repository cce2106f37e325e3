// What the browser keeps for this page, where it keeps anything.

// A browser may refuse storage altogether: even naming it raises then.
function stored(name, area = "localStorage") {
  try {
    return window[area].getItem(name);
  } catch {
    return null;
  }
}

function store(name, value, area = "localStorage") {
  try {
    if (value === null) window[area].removeItem(name);
    else window[area].setItem(name, value);
    return true;
  } catch {
    return false;
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
