// Runs an example by its name: npm run example -- orders-to-kafka
import { existsSync, readdirSync } from 'node:fs';
import { installPackages } from '../scripts/private-packages.ts';

const folder = new URL('./', import.meta.url);
const has = (name: string, file: string) => existsSync(new URL(`${name}/${file}`, folder));
const names = readdirSync(folder).filter((name) => has(name, 'main.ts'));
const [name = ''] = process.argv.slice(2);
if (names.includes(name)) {
  // Some have a framework or an ORM of their own.
  if (has(name, 'package.json')) installPackages(new URL(`${name}/`, folder), 'what the example needs');
  await import(`./${name}/main.ts`);
} else {
  console.error(`Which one? npm run example -- ${names.join(' | ')}`);
  process.exitCode = 2;
}
