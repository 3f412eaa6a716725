/** YAML text with the way back from a field to its line. */
import { type Document, LineCounter, isNode } from 'yaml'
import type { z } from 'zod'
import { messageOf } from '../../runtime/runtime.ts'
import { parseDocuments } from '../kubeapi.ts'
import { type FieldPath, pathText } from '../../model/schemas/schemas.ts'
import type { FileProblem } from './problem-board.ts'

/** One document of a file. */
export interface SourceDocument {
  /** Plain data; fields that are null are left out, as the Kubernetes API does. Undefined for an empty document. */
  readonly value: unknown
  /** The place of a field, or of the nearest thing around it that exists. */
  place(path: FieldPath): { readonly line: number; readonly column: number }
}

export type Source = { readonly documents: readonly SourceDocument[] } | { readonly problems: readonly FileProblem[] }

/** Reads all documents of a text (JSON is YAML too). Syntax errors give problems with line and column. */
export function readSource(file: string, text: string): Source {
  const lines = new LineCounter()
  // Merge keys and anchors are common in hand-written manifests; alias bombs are stopped by maxAliasCount below.
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
      sources.push({ value: withoutNulls(document.toJS({ maxAliasCount: 100 })), place })
    } catch (error) {
      return {
        problems: [{ file, ...place([]), reason: reasonOf(error) }],
      }
    }
  }
  return { documents: sources }
}

/** A file that is all wrong would otherwise fill the log. */
export const MAX_PROBLEMS = 20

/**
 * Turns the schema's complaints into problems. Every schema here gives, as its message, only what was expected.
 * `prefix` is the path of the object inside its document.
 */
export function schemaProblems(
  file: string,
  document: SourceDocument,
  error: z.ZodError,
  prefix: FieldPath = [],
): FileProblem[] {
  return error.issues.slice(0, MAX_PROBLEMS).map((issue) => {
    const path = [...prefix, ...issue.path]
    if (issue.code === 'unrecognized_keys') {
      const bad = [...path, issue.keys[0] ?? '']
      return {
        file,
        ...document.place(bad),
        reason: `${pathText([...issue.path, issue.keys[0] ?? ''])}: no such field`,
      }
    }
    const value = valueAt(document.value, path)
    const got = value === undefined ? 'got nothing' : `got ${abbreviate(value)}`
    return { file, ...document.place(path), reason: `${pathText(issue.path)}: expected ${issue.message}, ${got}` }
  })
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
  // The parser descends one call for each level.
  if (/call stack|stack overflow/i.test(message)) return 'nested too deeply, or an alias that contains itself'
  return message.split('\n', 1)[0] ?? message
}

function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls)
  if (value === null) return undefined
  if (typeof value !== 'object') return value
  const kept = Object.entries(value).filter(([, part]) => part !== null)
  return Object.fromEntries(kept.map(([key, part]) => [key, withoutNulls(part)]))
}
