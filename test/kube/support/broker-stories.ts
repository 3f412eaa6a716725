/** What operators do to a broker in a cluster on a bad day, as docs/operations.md says it, while members call each other. */
import { readdirSync, rmSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import type { Test } from 'tap'
import { eventually } from '../../support/eventually.ts'
import { helloService } from './callers.ts'
import { sealane } from './sealane-command.ts'
import { awaitImport, exportService } from './service-imports.ts'
import { type Member, type Three, allReachAll, keepCalling, nothingLost } from './three-members.ts'
import { SEALANE_IMAGE } from './two-clusters.ts'

const POD = '/api/v1/namespaces/sealane-broker/pods/sealane-broker-0'
/** A database and what SQLite puts beside it. */
const DATABASE = /^broker\.db(-wal|-shm)?$/

interface Row {
  readonly id: string
  readonly index: number
  readonly globalCIDRs: readonly string[]
}

/** The identity of one is replaced: the old one is refused at once, and nothing that it publishes goes meanwhile. */
export async function newIdentity(t: Test, three: Three): Promise<void> {
  const { hub, c1, c2, directory } = three
  const calls = await Promise.all([keepCalling(c1, c2), keepCalling(c2, c1)])
  const before = await members(hub)
  const file = join(directory, 'token-of-rekey')
  const { stdout } = await sealane(['cluster', 'rekey', c2.name, ...hub.at, '--out', file])
  t.match(stdout, `--token-file ${file}`, 'the line that joins')
  await sealane(['join', ...c2.at, '--cluster-id', c2.name, '--token-file', file, '--yes', '--image', SEALANE_IMAGE])
  await exportNew(c2, 'after-rekey')
  for (const member of [hub, c1]) await awaitImport(member, 'demo', 'after-rekey')
  t.strictSame(await members(hub), before, 'numbers and addresses are the same')
  await nothingLost(t, calls, [c1, c2], 'nothing was lost')
}

/** The broker's database is gone, and its key is not. */
export async function stateLost(t: Test, three: Three): Promise<void> {
  const { hub, c1, c2, directory } = three
  const backup = join(directory, 'broker.backup')
  const calls = await Promise.all([keepCalling(c1, c2, hub), keepCalling(hub, c1)])
  const before = await members(hub)
  await sealane(['broker', 'backup', ...hub.at, '--output', backup])
  const files = readdirSync(directory, { recursive: true, encoding: 'utf8' })
  const state = dirname(files.find((path) => basename(path) === 'broker.db') ?? '')
  for (const name of readdirSync(join(directory, state))) {
    if (DATABASE.test(name)) rmSync(join(directory, state, name))
  }
  await hub.api.raw('DELETE', `${POD}?gracePeriodSeconds=0`)
  await eventually(() => saysThatItKnowsLess(hub), { deadlineMs: 90_000, say: 'it does not start, and says why' })
  await sealane(['broker', 'deploy', ...hub.at, '--accept-empty'])
  t.strictSame(await members(hub), [], 'it knows nobody, and takes nobody’s place')
  await sealane(['broker', 'restore', backup, ...hub.at, '--force'])
  t.strictSame(await members(hub), before, 'everybody has the number and the addresses of before')
  await exportNew(c1, 'after-restore')
  for (const member of [hub, c2]) await awaitImport(member, 'demo', 'after-restore')
  await allReachAll([hub, c1, c2])
  await nothingLost(t, calls, [hub, c1, c2], 'nothing was lost')
}

async function members(hub: Member): Promise<readonly Row[]> {
  const { stdout } = await sealane(['cluster', 'list', ...hub.at, '-o', 'json'])
  const { items } = JSON.parse(stdout) as { readonly items: readonly Row[] }
  return items.map(({ id, index, globalCIDRs }) => ({ id, index, globalCIDRs }))
}

/** The container that runs, or the one before it. */
async function saysThatItKnowsLess({ api }: Member): Promise<true> {
  const logs = await Promise.all(['', '&previous=true'].map((of) => api.raw('GET', `${POD}/log?tailLines=20${of}`)))
  const said = logs.map(({ text }) => text).join('\n')
  if (said.includes('is older than the state that members have')) return true
  throw new Error(said)
}

async function exportNew(member: Member, service: string): Promise<void> {
  await member.api.apply(`/api/v1/namespaces/demo/services/${service}`, helloService(service))
  await exportService(member, 'demo', service)
}
