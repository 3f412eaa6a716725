/**
 * Reads and copies of a whole state in a thread of their own: SQLite works synchronously, and a state of 200 MB would
 * stop the broker for seconds. This file is only ever imported on demand, also where the program is bundled, so that the
 * thread finds it under its own address.
 */
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads'
import type { Verified } from '../../protocol/admin/admin.ts'
import { errorOf } from '../../runtime/runtime.ts'
import { type BackupContent, StateError, writeBackup } from '../store/store.ts'
import { verifyBackup, verifyState } from './verify-store.ts'

/** See writeBackup(), verifyState() and verifyBackup(). */
export type StateTask =
  | { readonly task: 'copy'; readonly database: string; readonly target: string; readonly content: BackupContent }
  | { readonly task: 'verify'; readonly stateDir: string; readonly nowMs: number }
  | { readonly task: 'verify-backup'; readonly file: string; readonly nowMs: number }

type Outcome =
  | { readonly result: Verified | undefined }
  | { readonly state: Pick<StateError, 'code' | 'file' | 'message'> }
  | { readonly message: string }

/** A broker has one such thread at a time: each may hold the whole state in memory. */
let before: Promise<unknown> = Promise.resolve()

/** See verifyState(). */
export async function verifyInThread(stateDir: string, nowMs: number): Promise<Verified> {
  const verified = await runStateTask({ task: 'verify', stateDir, nowMs })
  if (verified === undefined) throw new Error('the thread gave no result')
  return verified
}

/** Throws what the function of the task throws. Undefined for `copy`. */
export function runStateTask(task: StateTask): Promise<Verified | undefined> {
  const mine = before.then(() => inThread(task))
  before = mine.catch(() => undefined)
  return mine
}

async function inThread(task: StateTask): Promise<Verified | undefined> {
  const thread = new Worker(new URL(import.meta.url), { workerData: { stateTask: task } })
  const outcome = await new Promise<Outcome>((resolve, reject) => {
    thread.on('message', resolve)
    thread.on('error', (error) => reject(errorOf(error)))
    thread.on('exit', () => reject(new Error('the thread ended without a result')))
  })
  if ('result' in outcome) return outcome.result
  if ('state' in outcome) throw new StateError(outcome.state.code, outcome.state.file, outcome.state.message)
  throw new Error(outcome.message)
}

async function outcomeOf(task: StateTask): Promise<Outcome> {
  try {
    switch (task.task) {
      case 'copy':
        writeBackup(task.database, task.target, task.content)
        return { result: undefined }
      case 'verify':
        return { result: await verifyState(task.stateDir, task.nowMs) }
      case 'verify-backup':
        return { result: verifyBackup(task.file, task.nowMs) }
    }
  } catch (error) {
    const { message } = errorOf(error)
    return error instanceof StateError ? { state: { code: error.code, file: error.file, message } } : { message }
  }
}

const given = isMainThread ? undefined : (workerData as { readonly stateTask?: StateTask } | null)?.stateTask
if (given !== undefined) parentPort?.postMessage(await outcomeOf(given))
