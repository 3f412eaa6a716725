/** What is wrong in a file, and where. */

export interface FileProblem {
  /** As the user knows it: the configured folder and the path below it. */
  readonly file: string
  /** From 1. */
  readonly line: number
  readonly column: number
  readonly reason: string
  /** The object counts all the same, from another file. */
  readonly isKnown?: true
}

/** `objects/web.yaml:7:11: spec.ports[0].port: expected 1 to 65535, got "abc"` */
export function formatProblem({ file, line, column, reason }: FileProblem): string {
  return `${file}:${line}:${column}: ${reason}`
}

/** Fields of several files or one; thrown where nothing can go on without them. */
export class InvalidFileError extends Error {
  readonly problems: readonly FileProblem[]
  constructor(problems: readonly FileProblem[]) {
    super(problems.map(formatProblem).join('\n'))
    this.name = 'InvalidFileError'
    this.problems = problems
  }
}
