/**
 * One of several processes that share a state folder: `lease-process.ts MODE STATE TURNS`.
 *
 *   count  adds one to the number of the Lease, TURNS times; prints a line for each successful write
 *   remove removes the Lease TURNS times, while other processes write it; prints a line each time
 *   hold   takes the free Lease and gives it back, TURNS times; prints `both` if another process holds it too
 */
import { closeSync, openSync, rmSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { FileApi } from '../../../../kubeapi/files/file-api.ts'
import type { LeaseStore, StoredLease } from '../../../../kubeapi/cluster-api.ts'
import { SystemClock } from '../../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../../runtime/logging/capturing-logger.ts'
import { heldBy, newLease } from '../../../compliance/lease-store.ts'

const { signal } = new AbortController()
export const SHARED_LEASE = 'shared'
const NUMBER = 'number'
const me = `process-${process.pid}`

export function numberOf(lease: StoredLease | undefined): number {
  return Number(lease?.metadata.annotations?.[NUMBER] ?? 0)
}

function plusOne(lease: StoredLease | undefined): StoredLease {
  const base = lease ?? newLease(me, SHARED_LEASE)
  return { ...base, metadata: { ...base.metadata, annotations: { [NUMBER]: String(numberOf(lease) + 1) } } }
}

/** Returns false if another process has changed the Lease meanwhile. */
async function written(store: LeaseStore, lease: StoredLease): Promise<boolean> {
  try {
    await store.write(lease, signal)
    return true
  } catch (error) {
    if ((error as { code?: string }).code === 'Conflict') return false
    throw error
  }
}

// The write is synchronous, so that everything printed before a kill has really happened.
const say = (line: string): void => void writeSync(1, `${line}\n`)

async function count(store: LeaseStore, turns: number): Promise<void> {
  for (let done = 0; done < turns;) {
    if (!(await written(store, plusOne(await store.read(SHARED_LEASE, signal))))) continue
    done += 1
    say('counted')
  }
}

async function remove(api: FileApi, turns: number): Promise<void> {
  for (let done = 0; done < turns; done += 1) {
    await api.remove('Lease', SHARED_LEASE, 'sealane-system')
    say('removed')
    await new Promise((resolve) => setImmediate(resolve))
  }
}

async function hold(store: LeaseStore, turns: number, state: string): Promise<void> {
  const mark = join(state, 'held')
  for (let done = 0; done < turns;) {
    const seen = await store.read(SHARED_LEASE, signal)
    if ((seen?.spec?.holderIdentity ?? '') !== '') continue
    if (!(await written(store, seen === undefined ? newLease(me, SHARED_LEASE) : heldBy(seen, me)))) continue
    try {
      closeSync(openSync(mark, 'wx'))
    } catch {
      say('both')
    }
    await new Promise((resolve) => setTimeout(resolve, 1))
    rmSync(mark, { force: true })
    while (!(await written(store, heldBy(await store.read(SHARED_LEASE, signal), '')))) say('taken away')
    done += 1
    say('held')
  }
}

async function main(): Promise<void> {
  const [mode, state = '', turns = '0'] = process.argv.slice(2)
  const api = new FileApi(
    { clock: new SystemClock(), logger: new CapturingLogger() },
    { objects: join(state, '..', 'objects'), state },
  )
  if (mode === 'count') await count(api.leases, Number(turns))
  else if (mode === 'remove') await remove(api, Number(turns))
  else await hold(api.leases, Number(turns), state)
  await api.close()
}

if (import.meta.main) await main()
