/** Parses and validates a file of Kubernetes objects. Pure. */
import { CLUSTER_SCOPED, type Kind, type KubeObject } from '../../../model/model.ts'
import { type ObjectKey, keyOf, objectTitle } from '../../driver/driver.ts'
import { type FieldPath, type TypeMeta, userKind } from '../../../model/schemas/schemas.ts'
import type { FileProblem } from '../problem-board.ts'
import { MAX_PROBLEMS, type SourceDocument, readSource, schemaProblems } from '../yaml-source.ts'

export interface ParsedObject {
  readonly kind: Kind
  readonly key: ObjectKey
  readonly object: KubeObject
  readonly line: number
}

export interface ParsedFile {
  readonly objects: readonly ParsedObject[]
  /** Objects of kinds that Sealane does not read. */
  readonly ignored: number
}

export type ParseResult = { readonly file: ParsedFile } | { readonly problems: readonly FileProblem[] }

/** Limit in bytes. A larger file is rejected, since parsing it would block the process. */
export const MAX_FILE_BYTES = 8 * 1024 * 1024

/** Gives the position of a field of one object. */
export type PlaceOf = (path: FieldPath) => Pick<FileProblem, 'line' | 'column'>

/** Is called for each object of a file, also if another object makes the file invalid. */
export interface ObjectVisitor {
  readonly onTaken: (object: ParsedObject, place: PlaceOf) => void
  /** An object of a kind that Sealane does not read. */
  readonly onIgnored: (type: TypeMeta, place: PlaceOf) => void
}

/**
 * Takes a whole file: one or more documents, YAML or JSON, with `List` kinds unfolded. One invalid object makes the
 * whole file invalid; all problems are returned.
 */
export function parseObjects(file: string, text: string, visitor?: ObjectVisitor): ParseResult {
  const source = readSource(file, text)
  if ('problems' in source) return source
  const reading = new Reading(file, visitor)
  for (const document of source.documents) reading.read(document, document.value, [], undefined)
  if (reading.problems.length > 0) return { problems: reading.problems.slice(0, MAX_PROBLEMS) }
  return { file: { objects: [...reading.objects.values()], ignored: reading.ignored } }
}

interface InheritedType {
  readonly apiVersion: unknown
  readonly kind: unknown
}

class Reading {
  readonly objects = new Map<string, ParsedObject>()
  readonly problems: FileProblem[] = []
  ignored = 0
  readonly #file: string
  readonly #visitor: ObjectVisitor | undefined

  constructor(file: string, visitor: ObjectVisitor | undefined) {
    this.#file = file
    this.#visitor = visitor
  }

  /** `inherited` is the type of the items of a typed list; the items may omit it. */
  read(document: SourceDocument, value: unknown, path: FieldPath, inherited: InheritedType | undefined): void {
    if (value === undefined) return
    if (!isMap(value)) {
      this.#complain(document, path, 'expected a Kubernetes object with apiVersion, kind and metadata')
      return
    }
    const apiVersion = value['apiVersion'] ?? inherited?.apiVersion
    const kind = value['kind'] ?? inherited?.kind
    if (typeof apiVersion !== 'string' || typeof kind !== 'string') {
      const missing = typeof apiVersion === 'string' ? 'kind' : 'apiVersion'
      this.#complain(
        document,
        [...path, missing],
        `${missing}: expected text, ${value[missing] === undefined ? 'got nothing' : 'got something else'}`,
      )
    } else if (kind.endsWith('List') && Array.isArray(value['items'])) {
      const itemType = kind === 'List' ? undefined : { apiVersion, kind: kind.slice(0, -'List'.length) }
      for (const [i, item] of value['items'].entries()) this.read(document, item, [...path, 'items', i], itemType)
    } else {
      this.#take(document, value, path, { apiVersion, kind })
    }
  }

  #take(document: SourceDocument, value: object, path: FieldPath, type: TypeMeta): void {
    const placeOf: PlaceOf = (field) => document.place([...path, ...field])
    const known = userKind(type.apiVersion, type.kind)
    if (known === undefined) {
      this.ignored += 1
      this.#visitor?.onIgnored(type, placeOf)
      return
    }
    const checked = known.schema.safeParse(value)
    if (!checked.success) {
      this.problems.push(...schemaProblems(this.#file, document, checked.error, path))
      return
    }
    const object = withNamespace({
      apiVersion: known.apiVersion,
      kind: known.kind,
      ...(checked.data as object),
    } as KubeObject)
    const { line } = document.place(path)
    const id = `${known.kind} ${keyOf(object)}`
    const first = this.objects.get(id)
    if (first !== undefined) {
      const { name, namespace } = object.metadata
      this.#complain(
        document,
        path,
        `${objectTitle(known.kind, name, namespace)} occurs twice in this file, first at line ${first.line}`,
      )
      return
    }
    const parsed = { kind: known.kind, key: keyOf(object), object, line }
    this.objects.set(id, parsed)
    this.#visitor?.onTaken(parsed, placeOf)
  }

  #complain(document: SourceDocument, path: FieldPath, reason: string): void {
    this.problems.push({ file: this.#file, ...document.place(path), reason })
  }
}

/** Like kubectl: sets `default` where a namespace is missing, and removes it from cluster-scoped kinds. */
function withNamespace(object: KubeObject): KubeObject {
  const { namespace, ...rest } = object.metadata
  if (CLUSTER_SCOPED.has(object.kind)) return { ...object, metadata: rest }
  return { ...object, metadata: { ...object.metadata, namespace: namespace ?? 'default' } }
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
