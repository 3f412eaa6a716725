/** What a bundle lets out of facts: the objects as their kinds say, of reports and probes what checks read. Pure. */
import { probeSchema, reportSchema } from '../../explain/facts/fact-schemas.ts'
import type { Fact, FactSet } from '../../explain/facts/fact.ts'
import { objectLetOut } from './kind-fields.ts'
import { type AllowedFields, allowedBy, fields, letOut, letOutForReaders } from './let-out.ts'

/** Of `/status` of a part. */
export const REPORT_FIELDS = allowedBy(reportSchema()) as AllowedFields

/** Of a fact itself. */
const FACT = fields('t kind source at what reason message needed')

export function factsLetOut({ format, takenAt, target, facts }: FactSet): unknown {
  return { format, takenAt, target, facts: facts.map(factLetOut) }
}

function factLetOut(fact: Fact): unknown {
  switch (fact.t) {
    case 'objects':
      return { ...said(fact), items: fact.items.map((item) => objectLetOut(fact.kind, item)) }
    case 'report':
      return { ...said(fact), report: letOutForReaders(fact.report, REPORT_FIELDS) }
    case 'probe':
      return { ...said(fact), items: letOutForReaders(fact.items, allowedBy(probeSchema(fact.kind))) }
    case 'unanswered':
      return said(fact)
  }
}

function said(fact: Fact): object {
  const { t: _t, ...known } = Object.fromEntries(Object.entries(fact).filter(([key]) => key in FACT))
  return { t: fact.t, ...(letOut(known, FACT) as object) }
}
