import { gzipSync } from 'node:zlib';

const types: Record<string, string> = {
  'index.html': 'text/html; charset=utf-8',
  'app.js': 'text/javascript; charset=utf-8',
  'app.css': 'text/css; charset=utf-8',
  'icon.svg': 'image/svg+xml',
};

interface Asset {
  text: string;
  zipped: Uint8Array<ArrayBuffer>;
}

let assets: Map<string, Asset> | undefined;

/** The response with a file of the browser app, or `undefined` if there is no such file. Read at the first request. */
export async function assetResponse(name: string, request: Request): Promise<Response | undefined> {
  const file = name === '' ? 'index.html' : name;
  const type = Object.hasOwn(types, file) ? types[file] : undefined;
  if (type === undefined) return undefined;
  assets ??= await readAssets();
  const asset = assets.get(file);
  if (asset === undefined) return undefined;
  const headers = { 'content-type': type, vary: 'accept-encoding' };
  const isZipped = /\bgzip\b/.test(request.headers.get('accept-encoding') ?? '');
  return isZipped
    ? new Response(asset.zipped, { headers: { ...headers, 'content-encoding': 'gzip' } })
    : new Response(asset.text, { headers });
}

async function readAssets(): Promise<Map<string, Asset>> {
  const { appFiles } = await import('./app-files.ts');
  const files = Object.entries(appFiles());
  return new Map(files.map(([name, text]) => [name, { text, zipped: new Uint8Array(gzipSync(text)) }]));
}
