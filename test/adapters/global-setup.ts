import { installPackages } from '../../scripts/private-packages.ts';

/** Before any test file is loaded, because they import these packages. */
export default function setup(): void {
  installPackages(new URL('./', import.meta.url), 'the database clients for the tests of adapters');
  installPackages(new URL('prisma6/', import.meta.url), 'Prisma 6 for the tests of adapters');
}
