/** Brings one kind of thing in the kernel to what is desired: adds and changes, then removes. */
import { keyedDiff } from '../../reconcile/diff.ts'
import { isNotFound } from '../errors.ts'
import type { ChangeKind, Round } from './round.ts'

/** One kind of thing in the kernel. */
export interface Kind<T> {
  readonly kind: ChangeKind
  /** What the kernel has one of. */
  readonly key: (item: T) => string
  /** By which two of one key are the same; the command that makes it where absent. */
  readonly text?: (item: T) => string
  readonly format: (item: T) => string
  readonly formatDeletion: (item: T) => string
  readonly put: (item: T) => Promise<void>
  /** Of a failed put: it is there all the same. */
  readonly isThere?: (error: unknown) => boolean
  readonly remove: (item: T) => Promise<void>
}

export interface Brought<T> {
  /** What could not be made, or not be changed. */
  readonly failed: readonly T[]
  /** Removes what is there and not desired. */
  readonly remove: () => Promise<void>
}

/** Adds and changes, in the order of `desired`. What another program changed is counted as drift. */
export async function bring<T>(
  kind: Kind<T>,
  desired: readonly T[],
  observed: readonly T[],
  round: Round,
): Promise<Brought<T>> {
  const text = kind.text ?? kind.format
  const equal = (a: T, b: T): boolean => text(a) === text(b)
  const diff = keyedDiff({ desired, observed, desiredKey: kind.key, observedKey: kind.key, equal })
  const changed = diff.change.map((change) => change.desired)
  const { drift } = round
  drift?.repaired(kind.kind, 'Missing', drift.had(kind.kind, diff.add.map(kind.format)))
  drift?.repaired(kind.kind, 'Changed', drift.had(kind.kind, changed.map(kind.format)))
  drift?.repaired(kind.kind, 'Foreign', drift.neverHad(kind.kind, diff.remove.map(kind.format)))
  const there = new Set(desired.map(kind.format))
  const wanting = new Set([...diff.add, ...changed])
  const failed: T[] = []
  for (const item of desired.filter((one) => wanting.has(one))) {
    const made = kind.format(item)
    if (await round.change(kind.kind, made, () => kind.put(item), kind.isThere)) continue
    there.delete(made)
    failed.push(item)
  }
  drift?.settle(kind.kind, there)
  const remove = async (): Promise<void> => {
    for (const item of diff.remove) {
      // The kernel was faster: a device that goes takes along what hangs on it.
      await round.change(kind.kind, kind.formatDeletion(item), () => kind.remove(item), isNotFound)
    }
  }
  return { failed, remove }
}
