import { signal } from '@preact/signals';

export type Theme = 'light' | 'dark';

const dark = matchMedia('(prefers-color-scheme: dark)');
const key = 'postcommit-theme';

/** The system's choice, until the user makes one. */
export const theme = signal<Theme>(stored() ?? (dark.matches ? 'dark' : 'light'));

dark.addEventListener('change', () => {
  if (stored() === undefined) theme.value = dark.matches ? 'dark' : 'light';
});
theme.subscribe((value) => {
  document.documentElement.dataset.theme = value;
});

export function toggleTheme(): void {
  theme.value = theme.value === 'dark' ? 'light' : 'dark';
  try {
    localStorage.setItem(key, theme.value);
  } catch {
    // Storage is disabled: the choice lasts until the page is closed.
  }
}

function stored(): Theme | undefined {
  try {
    const value = localStorage.getItem(key);
    return value === 'light' || value === 'dark' ? value : undefined;
  } catch {
    return undefined;
  }
}
