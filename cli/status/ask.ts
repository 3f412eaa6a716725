/** Asks one question for facts within a time limit. If there is no answer, that is a fact too. */
import { request } from 'node:http'
import { FACTS_FORMAT, type Fact, type FactSet, type UnansweredFact } from '../../explain/facts/facts.ts'
import { ClusterApiError } from '../../kubeapi/kubeapi.ts'
import { SystemClock, orAborted } from '../../reconcile/reconcile.ts'
import { formatDuration, messageOf, sealaneVersion } from '../../runtime/runtime.ts'
import { OutOfTime } from '../context/context.ts'

/** For questions that run a command in a pod: a WebSocket is opened by GET, and Kubernetes 1.35 and later ask for both. */
export const EXEC_RIGHT = 'get and create pods/exec'

export interface Question {
  /** What the question is about: `Gateway`, `Pod sealane-agent-x2x1k`. */
  readonly what: string
  /** The name of the process or server that is asked. */
  readonly source: string
  /** Without an answer to this question, the health of the cluster is not known. */
  readonly needed: boolean
  readonly ms: number
  /** The right that the question needs: `list gateways.sealane.io`. */
  readonly right?: string
  readonly ask: (signal: AbortSignal) => Promise<readonly Fact[]>
}

/** Returns within the time limit of the question. Rejects only after the signal. */
export async function askFor(question: Question, signal: AbortSignal): Promise<readonly Fact[]> {
  const { ms, ask } = question
  try {
    return await withinOwnTime(signal, ms, (limited) => orAborted(ask(limited), limited))
  } catch (error) {
    signal.throwIfAborted()
    return [unansweredFact(question, error)]
  }
}

const TICK_MS = 25

/**
 * Like withinTime(), but counts only time in which this process runs. On a busy machine an answer may wait until the
 * process reads it, and is then not late.
 */
async function withinOwnTime<T>(
  signal: AbortSignal,
  ms: number,
  work: (limited: AbortSignal) => Promise<T>,
): Promise<T> {
  const late = new AbortController()
  const clock = new SystemClock()
  let left = Math.ceil(ms / TICK_MS)
  const tick = (): void => {
    left -= 1
    if (left <= 0) late.abort(new OutOfTime(ms))
    else cancel = clock.setTimer(TICK_MS, tick)
  }
  let cancel = clock.setTimer(TICK_MS, tick)
  try {
    return await work(AbortSignal.any([signal, late.signal]))
  } finally {
    cancel()
  }
}

function unansweredFact({ what, source, needed, right, ms }: Question, error: unknown): UnansweredFact {
  const fact = { t: 'unanswered', what, source, at: new Date().toISOString(), needed } as const
  if (error instanceof OutOfTime) {
    return { ...fact, reason: 'NotAnswered', message: `no answer within ${formatDuration(ms)}` }
  }
  if (error instanceof ClusterApiError && error.code === 'Forbidden') {
    const missing = right === undefined ? '' : `; the right to ${right} is needed`
    return { ...fact, reason: 'RightMissing', message: `${messageOf(error)}${missing}` }
  }
  if (error instanceof KindMissingError) return { ...fact, reason: 'KindMissing', message: error.message }
  if (error instanceof NothingRunsError) return { ...fact, reason: 'NothingRuns', message: error.message }
  return { ...fact, reason: 'NotAnswered', message: messageOf(error) }
}

export class KindMissingError extends Error {
  constructor(resource: string) {
    super(`the API server does not know ${resource}`)
    this.name = 'KindMissingError'
  }
}

export class NothingRunsError extends Error {
  constructor(address: string) {
    super(`nothing listens at ${address}`)
    this.name = 'NothingRunsError'
  }
}

// Reads the status page of a process on this machine.

/** Rejects if nothing listens at the address, if the status is not 200, or if the page has more than `maxBytes`. */
export function textOfPage(address: string, path: string, maxBytes: number, signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    const asked = request(`http://${address}${path}`, { signal, agent: false }, (response) => {
      const chunks: Buffer[] = []
      let size = 0
      response.on('data', (chunk: Buffer) => {
        chunks.push(chunk)
        size += chunk.length
        if (size > maxBytes) asked.destroy(new Error(`${address} sends more than a status page has`))
      })
      response.on('error', reject)
      response.on('end', () => {
        if (response.statusCode === 200) resolve(Buffer.concat(chunks).toString())
        else reject(new Error(`${address} answers ${response.statusCode ?? 0}${meaning(response.statusCode)}`))
      })
    })
    asked.on('error', (error: NodeJS.ErrnoException) => {
      reject(error.code === 'ECONNREFUSED' ? new NothingRunsError(address) : error)
    })
    asked.end()
  })
}

/** RFC 9110 sections 15.5.5, 15.5.9 and 15.6.4. Empty for every other status. */
function meaning(status: number | undefined): string {
  if (status === 404) return ': its release may not report its state'
  return status === 408 || status === 503 ? ': it is too busy to answer now, try again' : ''
}

// All questions are asked at once, so the screen appears with the slowest answer.

/** `ask` returns the facts of the cluster or the site. */
export async function gatherFacts(target: string, ask: () => Promise<readonly Fact[]>): Promise<FactSet> {
  const facts = await ask()
  const takenAt = new Date().toISOString()
  const report = { part: 'cli', name: 'sealane', version: sealaneVersion(), ready: true }
  const command: Fact = { t: 'report', source: 'this command', at: takenAt, report }
  return { format: FACTS_FORMAT, takenAt, target, facts: [...facts, command] }
}
