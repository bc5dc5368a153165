import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { delimiter, join } from 'node:path';
import { type Browser, chromium, type Page } from 'playwright-core';
import { unpackDebianPackage } from '../../services/debian-package.ts';
import { findProgram } from '../../services/run-command.ts';
import { NotAvailable } from '../../services/service.ts';
import { recordServer } from '../support/servers-used.ts';

/** A real Chromium: the one of this machine, or Debian's, unpacked into the cache folder. */
export async function launchBrowser(): Promise<Browser> {
  const args = ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'];
  const installed = await findProgram('chromium');
  if (installed !== undefined) return chromium.launch({ executablePath: installed, args });
  const { root, libraryFolders } = await unpackDebianPackage(
    { package: 'chromium', dependencies: /^(chromium-common|fonts-.*)$/, adapt: writeFontSettings },
    () => {},
  );
  const libraries = libraryFolders.flatMap((folder) => [folder, join(folder, 'pulseaudio')]);
  const env = { LD_LIBRARY_PATH: libraries.join(delimiter), FONTCONFIG_FILE: join(root, fontSettings) };
  return chromium.launch({
    executablePath: join(root, 'usr', 'lib', 'chromium', 'chromium'),
    args,
    env: { ...(process.env as Record<string, string>), ...env },
  });
}

/** Why tests with a browser are skipped. Throws what is no reason: with CI=true nothing is. */
export function reasonToSkip(error: unknown): string {
  if (!(error instanceof NotAvailable) || process.env.CI === 'true') throw error;
  recordServer(`no Chromium (${error.message})`);
  return error.message;
}

const fontSettings = 'fonts.conf';

/** Fonts are searched in the folders that this file names. The machine may have none. */
async function writeFontSettings(folder: string, root: string): Promise<void> {
  const own = `<dir>${join(root, 'usr', 'share', 'fonts')}</dir>`;
  const machine = '<include ignore_missing="yes">/etc/fonts/fonts.conf</include>';
  await writeFile(join(folder, fontSettings), `<fontconfig>${own}${machine}</fontconfig>\n`);
}

const axeFile = createRequire(import.meta.url).resolve('axe-core/axe.min.js');

interface Violation {
  id: string;
  impact: string;
  nodes: { html: string; failureSummary: string }[];
}

/** The serious accessibility violations of the page, as text. The page's own policy forbids foreign scripts. */
export async function findViolations(page: Page): Promise<string[]> {
  await page.evaluate(readFileSync(axeFile, 'utf8'));
  const violations = (await page.evaluate(
    "axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations)",
  )) as Violation[];
  const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
  return serious.map(({ id, nodes }) => `${id}: ${nodes[0]?.html} ${nodes[0]?.failureSummary}`);
}
