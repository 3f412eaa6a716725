/**
 * Loads the modules of the guest's suites, so that a Node with NODE_COMPILE_CACHE keeps them compiled and without their
 * types. Modules that have changed since are compiled again on either side.
 */
import { globSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from '../support/source-tree.ts'

const FOLDERS = ['gateway', 'kernel', 'model', 'reconcile', 'routeagent', 'runtime', 'kubeapi/memory']

await Promise.all(['tap', 'fast-check', ...globSync(FOLDERS.map((folder) => join(ROOT, folder, '**/*.ts')))].map(load))

function load(module: string): Promise<unknown> {
  return import(module)
}
