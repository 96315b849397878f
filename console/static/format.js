// Money by its currency's digits, and times in UTC and the reader's zone.

import { digits } from './currencies.js';

const formats = new Map();

function format(currency, places) {
  const key = `${currency} ${places}`;
  if (!formats.has(key)) {
    formats.set(key, new Intl.NumberFormat(undefined, {
      style: 'currency', currency, currencyDisplay: 'code', minimumFractionDigits: places, maximumFractionDigits: places,
    }));
  }
  return formats.get(key);
}

// decimal writes minor units as a decimal, digit by digit: never through a float.
function decimal(minor, places) {
  const text = String(minor).padStart(places + 1, '0');
  return places ? `${text.slice(0, -places)}.${text.slice(-places)}` : text;
}

// money shows minor units. The digits are the service's own table's, whatever the browser believes of the currency.
export function money(minor, currency) {
  if (minor === null || minor === undefined) return '–';
  const places = digits[currency];
  if (places === undefined) return `${minor} minor units of ${currency}`;
  return format(currency, places).format(decimal(minor, places));
}

// minorUnits reads an amount that a person typed, or is null: no separators but one point, and no more digits than the currency has.
export function minorUnits(typed, currency) {
  const places = digits[currency];
  const parts = /^(\d+)(?:\.(\d+))?$/.exec(typed.trim());
  if (!parts || places === undefined || (parts[2] ?? '').length > places) return null;
  const minor = BigInt(parts[1] + (parts[2] ?? '').padEnd(places, '0'));
  return minor > 0n && minor <= 9007199254740991n ? Number(minor) : null;
}

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const utc = new Intl.DateTimeFormat('sv-SE', { timeZone: 'UTC', dateStyle: 'short', timeStyle: 'medium' });
const local = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });

export const inUTC = (time) => `${utc.format(new Date(time))} UTC`;
// inZone is empty where the reader's zone is UTC itself.
export const inZone = (time) => (['UTC', 'Etc/UTC'].includes(zone) ? '' : `${local.format(new Date(time))} ${zone}`);

// span says how long in the two largest units.
export function span(milliseconds) {
  const s = Math.max(0, Math.floor(milliseconds / 1000));
  const parts = [[Math.floor(s / 86400), 'd'], [Math.floor(s / 3600) % 24, 'h'], [Math.floor(s / 60) % 60, 'min'], [s % 60, 's']];
  const first = parts.findIndex(([n]) => n > 0);
  if (first < 0) return '0 s';
  return parts.slice(first, first + 2).filter(([n], i) => n > 0 || i === 0).map(([n, unit]) => `${n} ${unit}`).join(' ');
}

export const count = (n, one, many = `${one}s`) => `${Number(n).toLocaleString()} ${Number(n) === 1 ? one : many}`;
