/**
 * Reads clusters from files. The first document holds the version and other facts, and each further document is an
 * object as the API returns it.
 */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { parseAllDocuments } from 'yaml'
import type { ClusterSnapshot } from '../../../../cli/discovery/snapshot.ts'

const FOLDER = join(import.meta.dirname, '..', 'fixtures')

export const FIXTURES = readdirSync(FOLDER)
  .map((file) => file.replace('.yaml', ''))
  .sort()

export function fixture(name: string): ClusterSnapshot {
  const documents = parseAllDocuments(readFileSync(join(FOLDER, `${name}.yaml`), 'utf8'))
  const [header, ...objects] = Array.from(documents, (document): unknown => document.toJS())
  const {
    version,
    crds,
    serviceProbes = [],
  } = header as Pick<ClusterSnapshot, 'version' | 'crds'> & Partial<Pick<ClusterSnapshot, 'serviceProbes'>>
  return { version, crds, serviceProbes, objects, unread: [] }
}
