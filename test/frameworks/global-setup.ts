import { installPackages } from '../../scripts/private-packages.ts';

/** Before any test file is loaded, because they import these packages. */
export default function setup(): void {
  installPackages(new URL('./', import.meta.url), 'the frameworks for tests');
}
