// Responses whose finish reason Endstop does not know, with the provider's own word. Show it as a table.
['gateway-requests']
| where finish_reason == "other"
| project _time, id, provider, model, native_field, native_finish_reason, reason, confidence, sentence
| order by _time desc
