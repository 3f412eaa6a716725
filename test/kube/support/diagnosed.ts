/** What `sealane diagnose` says of a cluster. */
import type { Test } from 'tap'
import { eventually } from '../../support/eventually.ts'
import { trySealane } from './sealane-command.ts'

export interface Diagnosed {
  /** Exit code: 0 healthy, 1 degraded, 2 down. */
  readonly code: number
  /** `reason subject: what was seen`, the first cause first. */
  readonly problems: readonly string[]
  readonly ms: number
}

/** Throws with what the command says where that is no diagnosis. */
export async function diagnosed(kubeconfig: string): Promise<Diagnosed> {
  const { code, stdout, stderr, ms } = await trySealane(['diagnose', '--kubeconfig', kubeconfig, '-o', 'json'])
  if (code > 2) throw new Error(stderr)
  const { problems } = JSON.parse(stdout) as {
    readonly problems: readonly {
      readonly reason: string
      readonly seen: string
      readonly subject: { readonly kind: string; readonly name: string }
    }[]
  }
  return {
    code,
    problems: problems.map(({ reason, subject: { kind, name }, seen }) => `${reason} ${kind} ${name}: ${seen}`),
    ms,
  }
}

/** Beside two other worlds the command alone may take twenty seconds, and has to be right twice. */
export const BEFORE_LONG_MS = 150_000

/** Before long it names these and nothing else, in whichever order: how their lines begin. */
export async function causesNamed(t: Test, kubeconfig: string, causes: readonly string[], say: string): Promise<void> {
  let seen: Diagnosed | undefined
  const areNamed = async (): Promise<boolean> => {
    seen = await diagnosed(kubeconfig)
    const { problems } = seen
    return problems.length === causes.length && causes.every((cause) => problems.some((line) => line.startsWith(cause)))
  }
  const isSo = await eventually(areNamed, { deadlineMs: BEFORE_LONG_MS, intervalMs: 2500 }).catch(() => false)
  t.ok(isSo, `${say}: ${causes.join(', ') || 'nothing'}`, { said: seen?.problems })
  t.comment(`diagnose: ${Math.round(seen?.ms ?? 0)} ms`)
}
