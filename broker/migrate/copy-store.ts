/** Brings one store's rows into another one, and compares them. Done again it does only what is left. */
import type { LogView, RecordLog } from '../log/record-log.ts'
import { SCOPES, type Scope, type Scopes } from '../state/state.ts'

/** Of one transaction: what every kind of store takes at once. */
const CHUNK_ROWS = 64
const CHUNK_BYTES = 512 * 1024

/** What says where the store itself is, and is different at both ends. */
const OWN: ReadonlySet<Scope> = new Set(['migration'])

interface Step {
  readonly scope: Scope
  readonly key: string
  /** Undefined: it is to go. */
  readonly value: Scopes[Scope] | undefined
}

/** Throws what the signal and the stores throw. Gives how many rows it wrote. */
export async function copyRows(from: LogView, to: RecordLog, signal: AbortSignal): Promise<number> {
  const steps = difference(from, to)
  for (const chunk of inChunks(steps)) {
    signal.throwIfAborted()
    await to.transact((tx) => {
      for (const { scope, key, value } of chunk) {
        if (value === undefined) tx.remove(scope, key)
        else tx.put(scope, key, value)
      }
    })
  }
  return steps.length
}

/** Scope and key of a row that is not the same in both; undefined: all are. */
export function firstDifference(from: LogView, to: LogView): string | undefined {
  const [step] = difference(from, to)
  return step === undefined ? undefined : `${step.scope} ${step.key}`
}

function difference(from: LogView, to: LogView): Step[] {
  return SCOPES.filter((scope) => !OWN.has(scope)).flatMap((scope) => {
    const wanted = new Map(from.list(scope).map(({ key, value }) => [key, value]))
    const gone = to.list(scope).filter(({ key }) => !wanted.has(key))
    const changed = [...wanted].filter(([key, value]) => JSON.stringify(to.get(scope, key)) !== JSON.stringify(value))
    return [
      ...gone.map(({ key }): Step => ({ scope, key, value: undefined })),
      ...changed.map(([key, value]): Step => ({ scope, key, value })),
    ]
  })
}

function* inChunks(steps: readonly Step[]): Generator<readonly Step[]> {
  let chunk: Step[] = []
  let bytes = 0
  for (const step of steps) {
    const size = step.value === undefined ? 0 : Buffer.byteLength(JSON.stringify(step.value))
    if (chunk.length >= CHUNK_ROWS || (chunk.length > 0 && bytes + size > CHUNK_BYTES)) {
      yield chunk
      chunk = []
      bytes = 0
    }
    chunk.push(step)
    bytes += size
  }
  if (chunk.length > 0) yield chunk
}
