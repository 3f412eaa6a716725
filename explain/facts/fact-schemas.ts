/** The fields of facts as JSON schemas have them: for who decides which of them go into a file. */
import { z } from 'zod'
import { PROBE_SHAPES, type ProbeKind } from './probe-shapes.ts'
import { type FactKind, OBJECT_SHAPES, PART_REPORT_SHAPE } from './shapes.ts'

/** The part of a JSON schema that says which fields there are. */
export interface FieldSchema {
  readonly properties?: Readonly<Record<string, FieldSchema>>
  readonly items?: FieldSchema
  readonly additionalProperties?: unknown
  readonly anyOf?: readonly FieldSchema[]
}

/** What a part says of itself. */
export function reportSchema(): FieldSchema {
  return schemaOf(PART_REPORT_SHAPE)
}

/** An item of each kind of probe. */
export function probeSchema(kind: ProbeKind): FieldSchema {
  return schemaOf(PROBE_SHAPES[kind])
}

/** What checks read of an object of a kind. */
export function objectSchema(kind: FactKind): FieldSchema {
  return schemaOf(OBJECT_SHAPES[kind])
}

/** Shapes here have nothing that a schema cannot say. */
function schemaOf(shape: z.ZodType): FieldSchema {
  return z.toJSONSchema(shape) as FieldSchema
}
