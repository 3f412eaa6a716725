/** Parses YAML and finds the line of a field. */
import { type Document, LineCounter, isNode } from 'yaml'
import type { z } from 'zod'
import { messageOf } from '../../runtime/runtime.ts'
import { parseDocuments } from '../kubeapi.ts'
import { type FieldPath, pathText } from '../../model/schemas/schemas.ts'
import type { FileProblem } from './problem-board.ts'

/** One document of a file. */
export interface SourceDocument {
  /** Plain data; fields that are null are left out, as in the Kubernetes API. Undefined for an empty document. */
  readonly value: unknown
  /** Returns the position of a field, or of the nearest existing node around it. */
  place(path: FieldPath): { readonly line: number; readonly column: number }
}

export type Source = { readonly documents: readonly SourceDocument[] } | { readonly problems: readonly FileProblem[] }

/** Reads all documents of a text (JSON is YAML, too). Syntax errors become problems with line and column. */
export function readSource(file: string, text: string): Source {
  const lines = new LineCounter()
  // Merge keys and anchors are common in manifests; maxAliasCount below stops alias bombs.
  let documents: readonly Document[]
  try {
    documents = parseDocuments(text, { lineCounter: lines })
  } catch (error) {
    return { problems: [{ file, line: 1, column: 1, reason: reasonOf(error) }] }
  }
  const problems = documents.flatMap((document) =>
    document.errors.map((error) => ({ file, ...position(lines, error.pos[0]), reason: reasonOf(error) })),
  )
  if (problems.length > 0) return { problems: problems.slice(0, MAX_PROBLEMS) }
  const sources: SourceDocument[] = []
  for (const document of documents) {
    const place = (path: FieldPath): { line: number; column: number } => position(lines, offsetOf(document, path))
    try {
      const value = document.toJS({ maxAliasCount: 100 }) as unknown
      const nothing = nullOfPolicy(value, [])
      if (nothing !== undefined) {
        const reason = `${pathText(nothing)}: expected a value, got nothing`
        return { problems: [{ file, ...place(nothing), reason }] }
      }
      sources.push({ value: withoutNulls(value), place })
    } catch (error) {
      return {
        problems: [{ file, ...place([]), reason: reasonOf(error) }],
      }
    }
  }
  return { documents: sources }
}

/**
 * The values of a text as far as they can be read, for what must be known about an invalid file. Undefined if the text
 * is no YAML.
 */
export function readValues(text: string): readonly unknown[] | undefined {
  try {
    const documents = parseDocuments(text, {})
    if (documents.some(({ errors }) => errors.length > 0)) return undefined
    return documents.map((document) => document.toJS({ maxAliasCount: 100 }) as unknown)
  } catch {
    return undefined
  }
}

/** Limits the problems of one file, so that it does not fill the log. */
export const MAX_PROBLEMS = 20

/**
 * Turns the schema's issues into problems. In every schema here, the message is only what was expected. `prefix` is the
 * path of the object inside its document.
 */
export function schemaProblems(
  file: string,
  document: SourceDocument,
  error: z.ZodError,
  prefix: FieldPath = [],
): FileProblem[] {
  const problems = error.issues.flatMap((issue): readonly FileProblem[] => {
    const path = [...prefix, ...issue.path]
    if (issue.code === 'unrecognized_keys') {
      return issue.keys.map((key) => ({
        file,
        ...document.place([...path, key]),
        reason: `${pathText([...issue.path, key])}: no such field`,
      }))
    }
    const value = valueAt(document.value, path)
    const got = value === undefined ? 'got nothing' : `got ${abbreviate(value)}`
    return [{ file, ...document.place(path), reason: `${pathText(issue.path)}: expected ${issue.message}, ${got}` }]
  })
  return problems.slice(0, MAX_PROBLEMS)
}

function valueAt(value: unknown, path: FieldPath): unknown {
  let here = value
  for (const part of path) {
    if (typeof here !== 'object' || here === null) return undefined
    here = (here as Record<PropertyKey, unknown>)[part]
  }
  return here
}

function abbreviate(value: unknown): string {
  const text = JSON.stringify(value)
  return text.length > 100 ? `${text.slice(0, 100)}…` : text
}

function offsetOf(document: Document, path: FieldPath): number {
  for (let length = path.length; length >= 0; length -= 1) {
    const node = document.getIn(path.slice(0, length), true)
    if (isNode(node) && node.range) return node.range[0]
  }
  return document.contents?.range?.[0] ?? 0
}

function position(lines: LineCounter, offset: number): { line: number; column: number } {
  const { line, col } = lines.linePos(offset)
  return { line: Math.max(line, 1), column: Math.max(col, 1) }
}

function reasonOf(error: unknown): string {
  const message = messageOf(error)
  // The parser recurses once for each level.
  if (/call stack|stack overflow/i.test(message)) return 'nested too deeply, or an alias that contains itself'
  return message.split('\n', 1)[0] ?? message
}

/** Kinds in which an absent field means all. A field without a value may be an entry that was commented out. */
const POLICIES: readonly unknown[] = ['AccessPolicy', 'ClusterAccessPolicy', 'TrafficPolicy', 'ClusterTrafficPolicy']

/** The path of the first field without a value in the spec of a policy, also of one in a list. */
function nullOfPolicy(value: unknown, path: FieldPath): FieldPath | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  const { kind, spec, items } = value as Readonly<Record<string, unknown>>
  if (POLICIES.includes(kind)) return firstNull(spec ?? null, [...path, 'spec'])
  if (!Array.isArray(items)) return undefined
  for (const [i, item] of items.entries()) {
    const found = nullOfPolicy(item, [...path, 'items', i])
    if (found !== undefined) return found
  }
  return undefined
}

function firstNull(value: unknown, path: FieldPath): FieldPath | undefined {
  if (value === null) return path
  if (typeof value !== 'object') return undefined
  for (const [key, part] of Object.entries(value)) {
    const found = firstNull(part, [...path, Array.isArray(value) ? Number(key) : key])
    if (found !== undefined) return found
  }
  return undefined
}

function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls)
  if (value === null) return undefined
  if (typeof value !== 'object') return value
  const kept = Object.entries(value).filter(([, part]) => part !== null)
  return Object.fromEntries(kept.map(([key, part]) => [key, withoutNulls(part)]))
}
