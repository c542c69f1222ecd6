"""Whether all that a page shows can be read: sizes, contrasts, and tables of pictures."""

from __future__ import annotations

from typing import Final

from tests.support.waiting import eventually
from tools.tensorboard_pages.browser import Browser

# By the rule of WCAG: colours are mixed as they are seen, with all that is translucent.
_UNREADABLE: Final = """
const parsed = (text) => {
  const numbers = text.match(/[\\d.]+/g).map(Number);
  return {rgb: numbers.slice(0, 3), alpha: numbers[3] ?? 1};
};
const over = (top, alpha, below) => top.map((each, at) => each * alpha + below[at] * (1 - alpha));
const light = (rgb) => {
  const [r, g, b] = rgb.map((each) => each / 255)
    .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ancestors = (element) => {
  const found = [];
  for (let each = element; each; each = each.parentElement) found.unshift(each);
  return found;
};
const ground = (element) => {
  let colour = [255, 255, 255];
  for (const each of ancestors(element)) {
    const {rgb, alpha} = parsed(getComputedStyle(each).backgroundColor);
    colour = over(rgb, alpha, colour);
  }
  return colour;
};
const wrong = [];
const look = (text, element, style, ink) => {
  const {rgb, alpha} = parsed(ink);
  const below = ground(element);
  const opacity = ancestors(element).reduce((all, each) => all * getComputedStyle(each).opacity, 1);
  const own = light(over(rgb, alpha * opacity, below)), back = light(below);
  const contrast = (Math.max(own, back) + 0.05) / (Math.min(own, back) + 0.05);
  const size = parseFloat(style.fontSize);
  if (contrast < 4.5 || size < 12) {
    wrong.push(`${text.trim().slice(0, 40)}: contrast ${contrast.toFixed(2)}, ${size} px`);
  }
};
let count = 0;
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode, element = node.parentElement;
  if (!node.data.trim() || !element.checkVisibility({visibilityProperty: true})) continue;
  if (['SCRIPT', 'STYLE', 'OPTION'].includes(element.tagName)) continue;
  const style = getComputedStyle(element);
  look(node.data, element, style, element.closest('svg') ? style.fill : style.color);
  count += 1;
}
for (const field of document.querySelectorAll('input[placeholder]')) {
  if (!field.checkVisibility()) continue;
  const style = getComputedStyle(field, '::placeholder');
  look(field.placeholder, field, style, style.color);
}
return [count, wrong];
"""
_WITHOUT_TABLE: Final = """
return [...document.querySelectorAll('.chart, .plane')].filter((picture) => {
  const around = picture.closest('.card, .curve, [data-part]');
  return !around.querySelector('details summary');
}).map((picture) => picture.outerHTML.slice(0, 200));
"""


def unreadable(browser: Browser) -> list[str]:
    """Returns the texts that are seen in the document with too little contrast, or too small."""
    eventually(lambda: browser.run("return document.getAnimations().length === 0"))
    count, wrong = browser.run(_UNREADABLE)
    assert count > 20
    return list(wrong)


def without_table(browser: Browser) -> list[str]:
    """Returns the charts and maps in the document that have no table beside them."""
    return list(browser.run(_WITHOUT_TABLE))
