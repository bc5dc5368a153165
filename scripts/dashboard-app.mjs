#!/usr/bin/env node
// Bundles the browser app of the dashboard. Run as a program, it writes its files as JSON to standard output.
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { buildSync } from 'esbuild';

const projectFolder = join(dirname(fileURLToPath(import.meta.url)), '..');

/** The texts of the files by name. */
export function buildDashboardApp() {
  const folder = join(projectFolder, 'src/dashboard/app');
  const { outputFiles } = buildSync({
    entryPoints: { app: join(folder, 'main.tsx') },
    outdir: folder,
    absWorkingDir: projectFolder,
    bundle: true,
    minify: true,
    write: false,
    format: 'esm',
    target: ['es2022', 'chrome111', 'firefox114', 'safari16.4'],
    legalComments: 'none',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    tsconfigRaw: {},
  });
  const text = (extension) => outputFiles.find(({ path }) => path.endsWith(extension)).text;
  const read = (name) => readFileSync(join(folder, name), 'utf8');
  return {
    'index.html': read('index.html'),
    'app.js': text('.js'),
    'app.css': text('.css'),
    'icon.svg': read('icon.svg'),
  };
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) process.stdout.write(JSON.stringify(buildDashboardApp()));
