/** Labels and annotations that the operator asks for on every object that Sealane writes: rules of a cluster may. */

type TextMap = Readonly<Record<string, string>>

export interface ObjectMarks {
  readonly labels: TextMap
  readonly annotations: TextMap
}

export const NO_OBJECT_MARKS: ObjectMarks = { labels: {}, annotations: {} }

interface Marked {
  readonly labels?: TextMap | undefined
  readonly annotations?: TextMap | undefined
}

/** Metadata with the marks. What it has already counts for more. The same value where there are no marks. */
export function withObjectMarks<T extends object>(metadata: T & Marked, marks: ObjectMarks): T {
  return extended(metadata, marks, (own, given) => ({ ...given, ...own }))
}

/** The same for metadata that was read, whose marks may be those of an earlier installation: the marks count for more. */
export function withNewObjectMarks<T extends object>(metadata: T & Marked, marks: ObjectMarks): T {
  return extended(metadata, marks, (own, given) => ({ ...own, ...given }))
}

function extended<T extends object>(
  metadata: T & Marked,
  { labels, annotations }: ObjectMarks,
  join: (own: TextMap | undefined, given: TextMap) => TextMap,
): T {
  const [hasLabels, hasAnnotations] = [Object.keys(labels).length > 0, Object.keys(annotations).length > 0]
  if (!hasLabels && !hasAnnotations) return metadata
  return {
    ...metadata,
    ...(hasLabels ? { labels: join(metadata.labels, labels) } : {}),
    ...(hasAnnotations ? { annotations: join(metadata.annotations, annotations) } : {}),
  }
}

/** Some mark is missing, or has another value. */
export function lacksObjectMarks(metadata: Marked, { labels, annotations }: ObjectMarks): boolean {
  const lacks = (own: TextMap = {}, given: TextMap): boolean =>
    Object.entries(given).some(([key, value]) => own[key] !== value)
  return lacks(metadata.labels, labels) || lacks(metadata.annotations, annotations)
}
