/** How the parts that run hear of the labels and annotations that every object is to have: the environment of pods. */
import { jsonText, when } from '../template-value.ts'
import type { MarkKind, Marks } from './marks.ts'

/** Names of variables. Each is a JSON object of texts; absent or empty: none. */
export const OBJECT_MARKS = {
  labels: 'SEALANE_OBJECT_LABELS',
  annotations: 'SEALANE_OBJECT_ANNOTATIONS',
} as const satisfies Readonly<Record<MarkKind, string>>

/** One variable may have 128 KiB with its name; beyond it the kernel starts no program. */
export const MAX_MARKS_BYTES = 120_000

/**
 * Entries of a container's `env`. The environment, because an image of an earlier release would not start with a flag
 * that it does not know.
 */
export function objectMarksEnv({ labels, annotations }: Marks): readonly unknown[] {
  return [
    ...when(labels, { name: OBJECT_MARKS.labels, value: jsonText(labels) }),
    ...when(annotations, { name: OBJECT_MARKS.annotations, value: jsonText(annotations) }),
  ]
}

/** What is wrong with all marks together, as `expected …`; undefined where nothing is. */
export function marksProblem(marks: Marks): string | undefined {
  const isTooLong = ([marks.labels, marks.annotations] as const).some(
    (map) => Buffer.byteLength(jsonText(map)) > MAX_MARKS_BYTES,
  )
  return isTooLong ? `expected at most ${MAX_MARKS_BYTES} bytes of keys and values together` : undefined
}
