/**
 * Loads what the suites of the guest load, so that a Node with NODE_COMPILE_CACHE keeps what it has compiled: with the
 * types taken out. What has changed since is compiled anew, here or there.
 */
import { globSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from '../support/source-tree.ts'

const FOLDERS = ['gateway', 'kernel', 'model', 'reconcile', 'routeagent', 'runtime', 'kubeapi/memory']

await Promise.all(['tap', 'fast-check', ...globSync(FOLDERS.map((folder) => join(ROOT, folder, '**/*.ts')))].map(load))

function load(module: string): Promise<unknown> {
  return import(module)
}
