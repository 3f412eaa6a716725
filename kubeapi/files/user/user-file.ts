/** Reading one user file, and deciding whether it is complete yet. */
import { createHash } from 'node:crypto'
import { type Stats, readFileSync, statSync } from 'node:fs'
import { messageOf } from '../../../runtime/thrown.ts'
import { isMissing } from '../atomic-write.ts'
import { MAX_FILE_BYTES, type ParseResult, type ParsedFile, parseObjects } from './parse-objects.ts'
import type { FileProblem } from '../problem.ts'

export type Reading =
  | { readonly is: 'missing' }
  | { readonly is: 'unreadable'; readonly problem: FileProblem }
  | { readonly is: 'text'; readonly text: string; readonly sha256: string; readonly stamp: string }

/** `title` is the path as the user knows it. */
export function readUserFile(path: string, title: string): Reading {
  try {
    const stats = statSync(path)
    if (!stats.isFile()) return { is: 'unreadable', problem: { ...atStart(title), reason: 'not a regular file' } }
    if (stats.size > MAX_FILE_BYTES) {
      const reason = `${inMiB(stats.size)} MiB: expected at most ${inMiB(MAX_FILE_BYTES)} MiB; split the file`
      return { is: 'unreadable', problem: { ...atStart(title), reason } }
    }
    const bytes = readFileSync(path)
    const sha256 = createHash('sha256').update(bytes).digest('hex')
    return { is: 'text', text: decode(bytes), sha256, stamp: stampOf(stats) }
  } catch (error) {
    if (isMissing(error)) return { is: 'missing' }
    const reason = messageOf(error)
    return { is: 'unreadable', problem: { ...atStart(title), reason } }
  }
}

export function parseUserFile(title: string, text: string): ParseResult {
  return parseObjects(title, text)
}

/** Changes whenever the file does. */
export function stampOf(stats: Stats): string {
  return `${stats.ino}:${stats.size}:${stats.mtimeMs}:${stats.ctimeMs}`
}

export function stampAt(path: string): string | undefined {
  try {
    return stampOf(statSync(path))
  } catch {
    return undefined
  }
}

/**
 * Whether a file that was written in place looks as if more were to come: it lost objects that it had, or ends
 * in the middle of a line (JSON that could be read whole has its last bracket, whatever follows it). Such a reading is
 * believed only after the file has not changed for a while.
 */
export function looksUnfinished(text: string, parsed: ParsedFile, before: ParsedFile | undefined): boolean {
  if (text !== '' && !text.endsWith('\n') && !/^\s*[{[]/.test(text)) return true
  const ids = new Set(parsed.objects.map(({ kind, key }) => `${kind} ${key}`))
  return (before?.objects ?? []).some(({ kind, key }) => !ids.has(`${kind} ${key}`))
}

function atStart(file: string): { file: string; line: number; column: number } {
  return { file, line: 1, column: 1 }
}

function decode(bytes: Buffer): string {
  // Editors on other systems put a byte order mark in front.
  return bytes.toString('utf8').replace(/^\uFEFF/, '')
}

/** Rounded up, so that what is too large never reads as the limit. */
function inMiB(bytes: number): number {
  return Math.ceil((bytes / (1024 * 1024)) * 10) / 10
}
