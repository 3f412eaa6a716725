/** Collects the problems of files and logs each only when it appears and when it is resolved. */
import { messageOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { diskReason } from './atomic-write.ts'

/** A problem in a file, and its position. */

export interface FileProblem {
  /** The path as the user writes it: the configured folder and the path below it. */
  readonly file: string
  /** From 1. */
  readonly line: number
  readonly column: number
  readonly reason: string
  /** True if the object is effective anyway, from another file. */
  readonly isKnown?: true
}

/** Formats as `objects/web.yaml:7:11: spec.ports[0].port: expected 1 to 65535, got "abc"`. */
export function formatProblem({ file, line, column, reason }: FileProblem): string {
  return `${file}:${line}:${column}: ${reason}`
}

/** Problems in the fields of one or several files; thrown if the program cannot continue without them. */
export class InvalidFileError extends Error {
  readonly problems: readonly FileProblem[]
  constructor(problems: readonly FileProblem[]) {
    super(problems.map(formatProblem).join('\n'))
    this.name = 'InvalidFileError'
    this.problems = problems
  }
}

/** A path in the state folder that could not be read or written. */
export interface StateTrouble {
  readonly path: string
  readonly reason: 'StateFileDamaged' | 'StateFolderUnusable' | 'DiskFull' | 'DiskReadOnly'
}

export class ProblemBoard {
  readonly #logger: Logger
  readonly #places = new Map<string, readonly FileProblem[]>()
  /** Reported problems of the state folder, by path and message. */
  readonly #state = new Map<string, StateTrouble>()
  readonly #odd = new Set<string>()
  #unread: ReadonlySet<string> = new Set()

  constructor(logger: Logger) {
    this.#logger = logger
  }

  list(): FileProblem[] {
    return [...this.#places.keys()].sort().flatMap((place) => this.#places.get(place) ?? [])
  }

  /** Sets all problems of one place: a file of the user, or the duplicates. */
  set(place: string, problems: readonly FileProblem[]): void {
    const before = new Set((this.#places.get(place) ?? []).map(formatProblem))
    if (problems.length === 0) {
      if (this.#places.delete(place)) this.#logger.info('the file is valid again', { file: place })
      return
    }
    this.#places.set(place, problems)
    for (const problem of problems) {
      if (before.has(formatProblem(problem))) continue
      const { reason: why, isKnown: _isKnown, ...place } = problem
      this.#logger.warn(`the file is not valid: ${formatProblem(problem)}`, { ...place, reason: 'InvalidValue', why })
    }
  }

  /** Reports the files whose policies cannot be read and never could. */
  unread(files: readonly string[]): void {
    for (const file of files) {
      if (this.#unread.has(file)) continue
      const text = 'a policy cannot be read: exports that it may be about are closed until the file is valid'
      this.#logger.warn(`${text}: ${file}`, { reason: 'PolicyFileInvalid', file })
    }
    this.#unread = new Set(files)
  }

  /** Reports an unusable state file; its writer writes the content again. */
  corrupt(path: string, reason: string): void {
    this.#once('StateFileDamaged', { path, why: reason }, 'a state file is damaged and ignored')
  }

  /** Reports a time in the state that looks wrong but is not used. */
  odd(what: string, why: string): void {
    const key = `${what}: ${why}`
    if (this.#odd.has(key)) return
    this.#odd.add(key)
    this.#logger.warn(key, { reason: 'LeaseTimeAhead', what, why })
  }

  /** Reports a failed read or write in the state folder. */
  stateError(path: string, error: unknown): void {
    const reason = diskReason(error) ?? 'StateFolderUnusable'
    this.#once(reason, { path, why: messageOf(error) }, 'cannot use the state folder')
  }

  /** Returns the reported paths, sorted, each once. */
  troubledState(): readonly StateTrouble[] {
    const byPath = new Map<string, StateTrouble>()
    for (const trouble of this.#state.values()) {
      // A folder that could not be created is then also missing: the disk is the cause.
      const before = byPath.get(trouble.path)?.reason
      if (before !== 'DiskFull' && before !== 'DiskReadOnly') byPath.set(trouble.path, trouble)
    }
    return [...byPath.values()].sort((a, b) => (a.path < b.path ? -1 : 1))
  }

  #once(
    reason: StateTrouble['reason'],
    { path, why }: { readonly path: string; readonly why: string },
    message: string,
  ): void {
    const key = `${path}: ${why}`
    if (this.#state.has(key)) return
    // The set is bounded: after very many reports the oldest may be repeated.
    if (this.#state.size >= 1000) this.#state.delete([...this.#state.keys()][0] ?? '')
    this.#state.set(key, { path, reason })
    this.#logger.warn(`${message}: ${key}`, { reason, path, why })
  }
}
