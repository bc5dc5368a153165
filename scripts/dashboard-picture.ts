// Writes docs/images/dashboard.png, the picture of the dashboard in README.md and docs/dashboard.md: the overview of the demo
// after half a minute. Run it after a change to the overview: npm run picture
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { launchBrowser } from '../test/dashboard/browser.ts';

const port = 4_417;
const file = new URL('../docs/images/dashboard.png', import.meta.url).pathname;
/** The charts have a point for every two seconds. */
const chartMs = 30_000;

const args = ['--import', 'tsx', 'src/cli/main.ts', 'demo', '--dashboard', String(port), '--seconds', '60'];
const demo = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] });
const ended = once(demo, 'exit');
const browser = await launchBrowser();
try {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, colorScheme: 'light' });
  const url = `http://127.0.0.1:${port}`;
  while (!(await fetch(url).then(Boolean, () => false))) {
    if (demo.exitCode !== null) throw new Error('the demo has ended');
    await sleep(200);
  }
  await page.goto(url);
  await page.getByRole('list', { name: 'Figures' }).waitFor();
  await sleep(chartMs);
  await page.screenshot({ path: file });
  process.stdout.write(`wrote ${file}\n`);
} finally {
  await browser.close();
  demo.kill('SIGINT');
  await ended;
}
