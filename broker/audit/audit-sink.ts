/** Where lines of the audit log go: a file (audit-file.ts), standard output, an array in tests. */

export interface AuditSink {
  /** Takes whole lines. Resolves when they are out; rejects when they are not, and then all of them may come again. */
  write(lines: readonly string[]): Promise<void>
  /** What is behind the name may be another one by now. Not called while write() is under way. */
  reopen?(): Promise<void>
  /** Does not wait for a reader. */
  close(): Promise<void>
}
