import { signal } from '@preact/signals';

/** Where the browser is: `#/<outbox>/<page>/<rest>`. No payload, header or error text is ever part of it. */
export interface PageAddress {
  outbox: string;
  page: string;
  rest: string[];
}

export const route = signal<PageAddress>(read());

addEventListener('hashchange', () => {
  route.value = read();
  document.querySelector<HTMLElement>('main')?.focus({ preventScroll: true });
  scrollTo(0, 0);
});

function read(): PageAddress {
  const [outbox = '', page = '', ...rest] = location.hash.replace(/^#\/?/, '').split('/').map(decode);
  return { outbox, page: page || 'overview', rest };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a page of the current outbox. */
export function href(page: string, ...rest: string[]): string {
  return `#/${[route.value.outbox, page, ...rest].map(encodeURIComponent).join('/')}`;
}

export function go(page: string, ...rest: string[]): void {
  location.hash = href(page, ...rest);
}

export function chooseOutbox(outbox: string): void {
  const { page } = route.value;
  location.hash = `#/${[outbox, page].map(encodeURIComponent).join('/')}`;
}
